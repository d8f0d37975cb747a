package main

import (
	"context"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"
)

// What takes longer is not compared: here is asked much and often.
const timeLimit = 250 * time.Millisecond

// The caches of expressions, by the features that they depend on. They are the larger part of an answer's time.
var caches = map[cel.Features]*cel.Cache{}

const cacheSize = 1000

type allocateQuestion struct {
	Features         []string
	Node             *v1.Node
	Classes          []*resourceapi.DeviceClass
	Slices           []*resourceapi.ResourceSlice
	Claims           []*resourceapi.ResourceClaim
	AllocatedDevices []string
	AllocatedShared  []string
	Aggregated       map[string]map[resourceapi.QualifiedName]resource.Quantity
}

type allocateAnswer struct {
	Results []resourceapi.AllocationResult
	Error   string
}

type classes []*resourceapi.DeviceClass

func (all classes) List() ([]*resourceapi.DeviceClass, error) { return all, nil }

func (all classes) Get(name string) (*resourceapi.DeviceClass, error) {
	for _, class := range all {
		if class.Name == name {
			return class, nil
		}
	}
	return nil, apierrors.NewNotFound(resourceapi.Resource("deviceclass"), name)
}

func features(names []string) structured.Features {
	on := sets.New(names...)
	return structured.Features{
		AdminAccess:             on.Has("AdminAccess"),
		CompatibilityGroups:     on.Has("CompatibilityGroups"),
		ConsumableCapacity:      on.Has("ConsumableCapacity"),
		DerivedAttributes:       on.Has("DerivedAttributes"),
		DeviceBindingAndStatus:  on.Has("DeviceBindingAndStatus"),
		DeviceTaints:            on.Has("DeviceTaints"),
		FractionalCapacityRange: on.Has("FractionalCapacityRange"),
		ListTypeAttributes:      on.Has("ListTypeAttributes"),
		OptionalNodeOperations:  on.Has("OptionalNodeOperations"),
		PartitionableDevices:    on.Has("PartitionableDevices"),
		PrioritizedList:         on.Has("PrioritizedList"),
	}
}

func deviceID(text string) (structured.DeviceID, string) {
	parts := append(strings.SplitN(text, "/", 4), "", "", "")
	return structured.MakeDeviceID(parts[0], parts[1], parts[2]), parts[3]
}

func allocatedState(asked *allocateQuestion) structured.AllocatedState {
	state := structured.AllocatedState{
		AllocatedDevices:         sets.New[structured.DeviceID](),
		AllocatedSharedDeviceIDs: sets.New[structured.SharedDeviceID](),
		AggregatedCapacity:       structured.NewConsumedCapacityCollection(),
	}
	for _, text := range asked.AllocatedDevices {
		id, _ := deviceID(text)
		state.AllocatedDevices.Insert(id)
	}
	for _, text := range asked.AllocatedShared {
		id, share := deviceID(text)
		uid := types.UID(share)
		state.AllocatedSharedDeviceIDs.Insert(structured.MakeSharedDeviceID(id, &uid))
	}
	for text, capacity := range asked.Aggregated {
		id, _ := deviceID(text)
		state.AggregatedCapacity.Insert(structured.NewDeviceConsumedCapacity(id, capacity))
	}
	return state
}

func cache(features cel.Features) *cel.Cache {
	if caches[features] == nil {
		caches[features] = cel.NewCache(cacheSize, features)
	}
	return caches[features]
}

func allocate(ctx context.Context, asked *allocateQuestion) any {
	ctx, cancel := context.WithTimeout(ctx, timeLimit)
	defer cancel()
	on := features(asked.Features)
	expressions := cache(cel.Features{
		EnableConsumableCapacity: on.ConsumableCapacity,
		EnableListTypeAttributes: on.ListTypeAttributes,
	})
	allocator, err := structured.NewAllocator(ctx, on, allocatedState(asked), classes(asked.Classes), asked.Slices, expressions)
	if err != nil {
		return allocateAnswer{Error: err.Error()}
	}
	results, err := allocator.Allocate(ctx, asked.Node, asked.Claims)
	if ctx.Err() != nil {
		return invalid{"it takes too long"}
	}
	if err != nil {
		return allocateAnswer{Error: err.Error()}
	}
	return allocateAnswer{Results: results}
}
