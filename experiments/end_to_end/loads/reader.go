// Reads known parts of a file and counts them. For by_kernel.py.
//
//	reader FILE CALLS GOROUTINES
//
// Says "ready" and waits for a line on its stdin. Then each goroutine makes CALLS calls for ranges
// of 1 to 65,536 bytes, and the counts are printed as JSON: bytes, and pages, where each call
// counts all pages that it covers.
package main

import (
	"bufio"
	"fmt"
	"math/rand"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
)

const page, longest = 4096, 65536

func main() {
	file, err := os.Open(os.Args[1])
	if err != nil {
		panic(err)
	}
	status, err := file.Stat()
	if err != nil {
		panic(err)
	}
	calls, _ := strconv.Atoi(os.Args[2])
	goroutines, _ := strconv.Atoi(os.Args[3])
	fmt.Println("ready")
	bufio.NewReader(os.Stdin).ReadString('\n')
	var bytes, pages atomic.Int64
	var all sync.WaitGroup
	for number := 0; number < goroutines; number++ {
		all.Add(1)
		go func() {
			defer all.Done()
			source := rand.New(rand.NewSource(int64(number)))
			buffer := make([]byte, longest)
			for call := 0; call < calls; call++ {
				length := 1 + source.Int63n(longest)
				at := source.Int63n(status.Size() - length)
				if _, err := file.ReadAt(buffer[:length], at); err != nil {
					panic(err)
				}
				bytes.Add(length)
				pages.Add((at+length-1)/page - at/page + 1)
			}
		}()
	}
	all.Wait()
	fmt.Printf("{\"bytes\": %d, \"pages\": %d, \"calls\": %d}\n", bytes.Load(), pages.Load(),
		calls*goroutines)
}
