// Measures upstream's allocator: a workload a line on standard input, its times and its answer a line on standard
// output.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"
)

// As many expressions as the scheduler keeps.
const cached = 10

type workload struct {
	Nodes   []*v1.Node
	Classes []*resourceapi.DeviceClass
	Slices  []*resourceapi.ResourceSlice
	// One after the other, each on the first node that has what its claims want.
	Pods [][]*resourceapi.ResourceClaim
	// How long to repeat it, and how long one time may take, in milliseconds.
	Budget int64
	Limit  int64
}

type measured struct {
	// In nanoseconds.
	Times []int64
	// By pod; none where it fits nowhere.
	Results [][]resourceapi.AllocationResult
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

// What is on by default.
var features = structured.Features{
	AdminAccess:             true,
	ConsumableCapacity:      true,
	DeviceBindingAndStatus:  true,
	DeviceTaints:            true,
	FractionalCapacityRange: true,
	PartitionableDevices:    true,
	PrioritizedList:         true,
}

func (given *workload) once(ctx context.Context, cache *cel.Cache) ([][]resourceapi.AllocationResult, error) {
	state := structured.AllocatedState{
		AllocatedDevices:         sets.New[structured.DeviceID](),
		AllocatedSharedDeviceIDs: sets.New[structured.SharedDeviceID](),
		AggregatedCapacity:       structured.NewConsumedCapacityCollection(),
	}
	results := make([][]resourceapi.AllocationResult, 0, len(given.Pods))
	for _, claims := range given.Pods {
		allocator, err := structured.NewAllocator(ctx, features, state, classes(given.Classes), given.Slices, cache)
		if err != nil {
			return nil, err
		}
		var result []resourceapi.AllocationResult
		for _, node := range given.Nodes {
			if result, err = allocator.Allocate(ctx, node, claims); err != nil {
				return nil, err
			}
			if result != nil {
				break
			}
		}
		for _, claim := range result {
			for _, device := range claim.Devices.Results {
				state.AllocatedDevices.Insert(structured.MakeDeviceID(device.Driver, device.Pool, device.Device))
			}
		}
		results = append(results, result)
	}
	return results, nil
}

func (given *workload) measure() (said measured) {
	cache := cel.NewCache(cached, cel.Features{EnableConsumableCapacity: true})
	budget, limit := time.Duration(given.Budget)*time.Millisecond, time.Duration(given.Limit)*time.Millisecond
	// The first time is not counted: it compiles the expressions.
	for begun, count := time.Now(), 0; count == 0 || time.Since(begun) < budget; count++ {
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		started := time.Now()
		results, err := given.once(ctx, cache)
		took := time.Since(started)
		cancel()
		if err != nil {
			return measured{Error: err.Error()}
		}
		if count > 0 || took > budget {
			said.Times = append(said.Times, took.Nanoseconds())
		}
		said.Results = results
	}
	return said
}

func main() {
	// As the scheduler has it: the most settled one that knows the features.
	lines := bufio.NewReaderSize(os.Stdin, 1<<20)
	encoder := json.NewEncoder(os.Stdout)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return
		}
		var given workload
		if err = json.Unmarshal(line, &given); err == nil {
			err = encoder.Encode(given.measure())
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}
