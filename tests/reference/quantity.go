package main

import "k8s.io/apimachinery/pkg/api/resource"

type quantityQuestion struct {
	A string `json:"a"`
	B string `json:"b"`
}

type quantityAnswer struct {
	ParseError     string `json:"parseError,omitempty"`
	Canonical      string `json:"canonical,omitempty"`
	Format         string `json:"format,omitempty"`
	AsInt64        *int64 `json:"asInt64,omitempty"`
	ValueRoundedUp int64  `json:"valueRoundedUp"`
	Cmp            int    `json:"cmp"`
	Add            string `json:"add,omitempty"`
	Sub            string `json:"sub,omitempty"`
}

func calculate(asked *quantityQuestion) quantityAnswer {
	a, err := resource.ParseQuantity(asked.A)
	if err != nil {
		return quantityAnswer{ParseError: err.Error()}
	}
	said := quantityAnswer{Canonical: a.String(), Format: string(a.Format), ValueRoundedUp: a.Value()}
	if whole, exact := a.AsInt64(); exact {
		said.AsInt64 = &whole
	}
	b, err := resource.ParseQuantity(asked.B)
	if err != nil {
		return said
	}
	said.Cmp = a.Cmp(b)
	sum, difference := a.DeepCopy(), a.DeepCopy()
	sum.Add(b)
	difference.Sub(b)
	said.Add, said.Sub = sum.String(), difference.String()
	return said
}
