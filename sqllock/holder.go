package sqllock

import "github.com/sqllock/sqllock/strategies"

// What strategies and users both see is one type, of package strategies: "go doc strategies.Status" shows its fields.
type (
	// Holder says who holds a lock, or asks for it. Its String is "label (host, pid N)", as far as it is known, fit for a terminal.
	// Fields: [strategies.Holder].
	Holder = strategies.Holder
	// Status is what the database knows of a name. Fields: [strategies.Status].
	Status = strategies.Status
	// Filter narrows [Locker.Holders]. The zero value matches all locks. Fields: [strategies.Filter].
	Filter = strategies.Filter
	// Waiter is one who waits for a lock. Fields: [strategies.Waiter].
	Waiter = strategies.Waiter
	// WaiterFilter narrows [Locker.Waiters]. The zero value matches all who wait. Fields: [strategies.WaiterFilter].
	WaiterFilter = strategies.WaiterFilter
	// Reaped counts what [Locker.Reap] did. Fields: [strategies.Reaped].
	Reaped = strategies.Reaped
)

// splitSlots moves the slots from the names of what a strategy tells to where users see them.
func splitSlots(statuses []Status) {
	for i := range statuses {
		statuses[i].Name, statuses[i].Slot = strategies.SplitSlot(statuses[i].Name)
	}
}

// setPlaces says of those who wait, listed by name and in the order of arrival, in which place they are.
func setPlaces(listed []Waiter) {
	for i := range listed {
		if listed[i].Place = 1; i > 0 && listed[i-1].Name == listed[i].Name {
			listed[i].Place += listed[i-1].Place
		}
	}
}
