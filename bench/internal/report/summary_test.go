package report_test

import (
	"testing"

	"github.com/sqllock/sqllock/bench/internal/report"
)

func TestSums(t *testing.T) {
	t.Parallel()

	rows := `| ours: pair | postgres | ≤ 1.30× of floor: one update | 1.53× (1.14× – 1.57×) | **missed** |
| ours: pair | mysql | ≤ 1.50× of floor: two updates (2 times as fast as before) | 1.20× | **met** |
| ours: pairs/s | postgres | ≥ 0.40× of advisory lock by hand | by hand: no server | **not measured** |
| ours: pairs/s | mysql | ≥ 0.50× of GET_LOCK by hand | 0.60× (0.40× – 0.70×) | **unclear, median met** |
| ours: pairs/s | postgres | ≥ 1.50× of theirs on redis | 0.85× (0.80× – 0.90×) | **missed** |
| ours: p50 | mariadb | ≤ 2.00 ms | 1.52 ms | **met** |
| ours: p50 | mariadb | ≤ 1.00 ms | 1.52 ms | **missed** |
`
	want := `| figure | PostgreSQL | MySQL | MariaDB |
| --- | --- | --- | --- |
| ours: pair, of its floor | 1.53×, target ≤ 1.30×: **missed** | 1.20×, target ≤ 1.50×: met |  |
| ours: pairs/s, of the lock by hand | by hand: no server, target ≥ 0.40×: **not measured** | 0.60×, target ≥ 0.50×: **unclear, median met** |  |
| ours: pairs/s, of theirs on redis | 0.85×, target ≥ 1.50×: **missed** |  |  |
| ours: p50 |  |  | 1.52 ms, target ≤ 2.00 ms: met |
| ours: p50 |  |  | 1.52 ms, target ≤ 1.00 ms: **missed** |
`

	if got := report.Sums(rows); got != want {
		t.Errorf("Sums =\n%s\nwant\n%s", got, want)
	}
}
