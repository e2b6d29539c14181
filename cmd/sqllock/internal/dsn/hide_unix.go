//go:build unix

package dsn

import "unsafe"

// overwrite changes the text of a program argument in place. The runtime's
// os.Args are the process's own memory, which is what ps reads.
func overwrite(argument string, from, to int) {
	//nolint:gosec // there is no other way to reach that memory
	for i, bytes := 0, unsafe.Slice(unsafe.StringData(argument), len(argument)); i < len(bytes); i++ {
		if i >= from && i < to {
			bytes[i] = 'x'
		}
	}
}
