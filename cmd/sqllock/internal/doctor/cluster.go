package doctor

import "context"

func mysqlCluster(ctx context.Context, e *exam) ([]Finding, error) {
	const (
		galera = "wsrep_on"
		single = "group_replication_single_primary_mode"
		group  = "group_replication_group_name"
		// https://dev.mysql.com/doc/refman/9.7/en/group-replication-configuring-consistency-guarantees.html
		consistency = "group_replication_consistency"
	)

	set, err := e.shown(ctx, "GLOBAL VARIABLES", galera, single, group, consistency)

	switch {
	case err != nil:
		return nil, err
	case set[galera] == "ON":
		return e.manyPrimaries("Galera, where each node takes writes"), nil
	case set[single] == "OFF":
		return e.manyPrimaries("a replication group with several primaries"), nil
	case set[group] == "":
		return fine("one server"), nil
	case set[consistency] == "EVENTUAL":
		return found(Warning, "a replication group whose group_replication_consistency is EVENTUAL",
			"the next primary begins before it has caught up: until then it shows locks as they were, and may let the guard of an "+
				"earlier holder pass",
			"set group_replication_consistency = BEFORE_ON_PRIMARY_FAILOVER, the default from MySQL 8.4 on"), nil
	default:
		return fine("a replication group"), nil
	}
}

// manyPrimaries is about a cluster in which each node takes writes.
func (e *exam) manyPrimaries(cluster string) []Finding {
	if e.connectionHeld() {
		return found(Error, cluster+", and strategy "+e.Strategy,
			"sqllock refuses it: row locks and GET_LOCK hold on one node only, so that two could hold a lock",
			"use strategy cas or insert, and send its statements to one node")
	}

	return found(Note, cluster, "attempts on two nodes meet at their commit, where one of them fails and begins again; a node that lags "+
		"shows locks as they were", "send sqllock's statements to one node, for speed")
}
