package doctor

import "context"

func mysqlCluster(ctx context.Context, e *exam) ([]Finding, error) {
	galera, err := e.variable(ctx, "GLOBAL VARIABLES", "wsrep_on")
	if err != nil {
		return nil, err
	}

	if galera == "ON" {
		return e.manyPrimaries("Galera, where each node takes writes"), nil
	}

	mode, err := e.variable(ctx, "GLOBAL VARIABLES", "group_replication_single_primary_mode")
	if err != nil {
		return nil, err
	}

	group, err := e.variable(ctx, "GLOBAL VARIABLES", "group_replication_group_name")

	switch {
	case err != nil:
		return nil, err
	case mode == "OFF":
		return e.manyPrimaries("a replication group with several primaries"), nil
	case group == "":
		return fine("one server"), nil
	}

	consistency, err := e.variable(ctx, "GLOBAL VARIABLES", "group_replication_consistency")
	if err != nil {
		return nil, err
	}

	// https://dev.mysql.com/doc/refman/9.7/en/group-replication-configuring-consistency-guarantees.html
	if consistency == "EVENTUAL" {
		return found(Warning, "a replication group whose group_replication_consistency is EVENTUAL",
			"the next primary begins before it has caught up: until then it shows locks as they were, and may let the guard of an "+
				"earlier holder pass",
			"set group_replication_consistency = BEFORE_ON_PRIMARY_FAILOVER, the default from MySQL 8.4 on"), nil
	}

	return fine("a replication group"), nil
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
