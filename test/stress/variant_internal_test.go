//go:build unix

package stress

import (
	"slices"
	"testing"
)

// Variants run beside each other on one server, so none has a fault that strikes the whole of it.
func TestVariantsSpareTheServer(t *testing.T) {
	t.Parallel()

	for _, v := range Variants() {
		for _, fault := range []Fault{FaultCrash, FaultFreeze} {
			if slices.Contains(v.Faults, fault) {
				t.Errorf("variant %s has the fault %s", v.id(), fault)
			}
		}
	}
}
