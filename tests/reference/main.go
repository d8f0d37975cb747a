// Answers questions on standard input, one JSON object a line, as upstream's code does; one line each.
//
// {"allocate": …}, {"cel": …} and {"quantity": …} have the inputs of the recorded rows.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"

	"k8s.io/dynamic-resource-allocation/structured"
)

type question struct {
	Allocate *allocateQuestion `json:"allocate"`
	Cel      *celQuestion      `json:"cel"`
	Quantity *quantityQuestion `json:"quantity"`
}

// What is no question, or breaks the reference, has no answer to compare.
type invalid struct {
	Invalid string `json:"invalid"`
}

func answer(ctx context.Context, line []byte) (said any, err error) {
	defer func() {
		if broken := recover(); broken != nil {
			said = invalid{fmt.Sprint(broken)}
		}
	}()
	var asked question
	if err := json.Unmarshal(line, &asked); err != nil {
		return invalid{err.Error()}, nil
	}
	switch {
	case asked.Allocate != nil:
		return allocate(ctx, asked.Allocate), nil
	case asked.Cel != nil:
		return evaluate(ctx, asked.Cel), nil
	case asked.Quantity != nil:
		return calculate(asked.Quantity), nil
	}
	return nil, fmt.Errorf("a question of no kind: %s", line)
}

func main() {
	// The oldest allocator knows no gates that are on by default.
	structured.EnableAllocators("incubating", "experimental")
	lines := bufio.NewReaderSize(os.Stdin, 1<<20)
	answers := bufio.NewWriter(os.Stdout)
	encoder := json.NewEncoder(answers)
	encoder.SetEscapeHTML(false)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return
		}
		said, err := answer(context.Background(), line)
		if err == nil {
			err = encoder.Encode(said)
		}
		if err == nil && lines.Buffered() == 0 {
			// Whoever asks waits for the answers before the next questions.
			err = answers.Flush()
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}
