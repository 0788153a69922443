// As sites.c.
package main

import (
	"bufio"
	"fmt"
	"os"
)

//go:noinline
func first(path string) int {
	data, _ := os.ReadFile(path)
	return len(data)
}

//go:noinline
func second(path string) int {
	file, _ := os.Open(path)
	defer file.Close()
	bytes, _ := file.Read(make([]byte, 1<<16))
	return bytes
}

func main() {
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		if first(os.Args[1])+second(os.Args[2]) > 0 {
			fmt.Println("read")
		}
	}
}
