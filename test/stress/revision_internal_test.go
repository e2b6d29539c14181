//go:build unix

package stress

import (
	"strings"
	"testing"
)

// A run beside a revision that is not there must not pass for one.
func TestRevisionThatIsNotThere(t *testing.T) {
	t.Parallel()

	if r, err := BuildRevision(t.Context(), strings.Repeat("0", 40)); err == nil {
		t.Errorf("built %s", r)
	}
}

func TestProgramOfAnotherProtocol(t *testing.T) {
	t.Parallel()

	for program, want := range map[string]string{
		"true":  `its workers have protocol "", and this run has`,
		"false": "its workers do not tell their protocol",
	} {
		if err := speaks(t.Context(), program); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got error %v, want %q", program, err, want)
		}
	}
}
