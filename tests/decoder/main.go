// Decodes a file again and again, as upstream's reader does: from the stream, in as many reads as that takes. Ends with an
// error when a document is broken, mixed or older than one that was read before.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"time"
)

type document struct {
	Generation uint64   `json:"generation"`
	Values     []uint64 `json:"values"`
}

func read(path string) (uint64, error) {
	file, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer file.Close()
	var found document
	if err := json.NewDecoder(file).Decode(&found); err != nil {
		return 0, err
	}
	for _, value := range found.Values {
		if value != found.Generation {
			return 0, fmt.Errorf("%d in version %d", value, found.Generation)
		}
	}
	return found.Generation, nil
}

func main() {
	duration, err := time.ParseDuration(os.Args[2])
	if err != nil {
		panic(err)
	}
	var newest, reads uint64
	for end := time.Now().Add(duration); time.Now().Before(end); reads++ {
		generation, err := read(os.Args[1])
		if err == nil && generation < newest {
			err = fmt.Errorf("version %d after %d", generation, newest)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		newest = generation
	}
	fmt.Println(reads, "documents decoded by Go")
}
