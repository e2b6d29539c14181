package strategies

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// A name that several may hold at a time has slots. Each slot is a lock of its own for a
// strategy, with token, lease and guard, under the name that SlotName returns; the first has
// the name itself. What the slots share is the line: those who wait for any of them wait for
// the name, and say how many slots it has.

// MaxSlots is the most slots that a name can have.
const MaxSlots = 1000

// slotMark separates a name from the number of a slot. No name has it, so that a slot is
// nobody's name.
const slotMark = "\x1f"

// slotDigits is how long the number is, so that slots sort by it.
const slotDigits = 4

// SlotNameLength is how much longer than a name the names of its slots are, in bytes.
const SlotNameLength = len(slotMark) + slotDigits

// SlotName is the name of a slot, from 0 on.
func SlotName(name string, slot int) string {
	if slot == 0 {
		return name
	}

	return fmt.Sprintf("%s%s%0*d", name, slotMark, slotDigits, slot)
}

// SlotNames are the names of as many slots.
func SlotNames(name string, slots int) []string {
	names := make([]string, max(1, slots))
	for i := range names {
		names[i] = SlotName(name, i)
	}

	return names
}

// SplitSlot returns the name and the slot that SlotName made one of.
func SplitSlot(slotName string) (name string, slot int) {
	name, number, found := strings.Cut(slotName, slotMark)
	if found {
		slot, _ = strconv.Atoi(number)
	}

	return name, slot
}

// HasSlotMark says whether a text cannot be a name because SlotName uses what is in it.
func HasSlotMark(text string) bool { return strings.Contains(text, slotMark) }

// SlotRange returns what the names of as many slots are greater than, and less than; but not that of
// the first, which is the name itself.
func SlotRange(name string, slots int) (above, below string) {
	return name + slotMark, SlotName(name, slots)
}

// SlotsLeft says how many slots of n are free when those have theirs who are ahead in line, of whom each
// takes one of as many as it knows. free says of each of n slots whether it is.
func SlotsLeft(n int, free []bool, ahead []int) int {
	// How many of the first k are free.
	among := make([]int, n+1)

	for k := range n {
		among[k+1] = among[k]
		if free[k] {
			among[k+1]++
		}
	}

	slices.Sort(ahead)

	taken := 0
	for _, k := range ahead {
		taken = min(taken+1, among[min(max(1, k), n)])
	}

	return among[n] - taken
}
