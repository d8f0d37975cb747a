package main

import (
	"context"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/dynamic-resource-allocation/cel"
)

type celQuestion struct {
	Expression               string                                                    `json:"expression"`
	Driver                   string                                                    `json:"driver"`
	Attributes               map[resourceapi.QualifiedName]resourceapi.DeviceAttribute `json:"attributes"`
	Capacity                 map[resourceapi.QualifiedName]resourceapi.DeviceCapacity  `json:"capacity"`
	AllowMultipleAllocations *bool                                                     `json:"allowMultipleAllocations"`
	ConsumableCapacity       bool                                                      `json:"consumableCapacity"`
	ListTypes                bool                                                      `json:"listTypes"`
	Env                      string                                                    `json:"env"`
}

type celAnswer struct {
	Match        bool    `json:"match"`
	ActualCost   *uint64 `json:"actualCost,omitempty"`
	CompileError string  `json:"compileError,omitempty"`
	Error        string  `json:"error,omitempty"`
}

func evaluate(ctx context.Context, asked *celQuestion) celAnswer {
	kind := environment.StoredExpressions
	if asked.Env == string(environment.NewExpressions) {
		kind = environment.NewExpressions
	}
	compiler := cel.GetCompiler(cel.Features{
		EnableConsumableCapacity: asked.ConsumableCapacity,
		EnableListTypeAttributes: asked.ListTypes,
	})
	compiled := compiler.CompileCELExpression(asked.Expression, cel.Options{EnvType: &kind, DisableCostEstimation: true})
	if compiled.Error != nil {
		return celAnswer{CompileError: compiled.Error.Error()}
	}
	match, details, err := compiled.DeviceMatches(ctx, cel.Device{
		Driver:                   asked.Driver,
		Attributes:               asked.Attributes,
		Capacity:                 asked.Capacity,
		AllowMultipleAllocations: asked.AllowMultipleAllocations,
	})
	said := celAnswer{Match: match}
	if details != nil {
		said.ActualCost = details.ActualCost()
	}
	if err != nil {
		said.Error = err.Error()
	}
	return said
}
