package doctor

import (
	"context"
	"fmt"
)

func mysqlCluster(ctx context.Context, e *exam) ([]Finding, error) {
	galera, err := e.variable(ctx, "GLOBAL VARIABLES", "wsrep_on")
	if err != nil {
		return nil, err
	}

	if galera == "ON" {
		return e.galera(ctx)
	}

	mode, err := e.variable(ctx, "GLOBAL VARIABLES", "group_replication_single_primary_mode")
	if err != nil {
		return nil, err
	}

	group, err := e.variable(ctx, "GLOBAL VARIABLES", "group_replication_group_name")

	switch {
	case err != nil:
		return nil, err
	case group == "" && mode != "OFF":
		return fine("one server"), nil
	case mode == "OFF":
		findings := e.manyPrimaries("a replication group with several primaries")
		more, err := e.group(ctx)

		return append(findings, more...), err
	}

	findings, err := e.group(ctx)
	if err != nil || len(findings) > 0 {
		return findings, err
	}

	consistency, err := e.variable(ctx, "GLOBAL VARIABLES", "group_replication_consistency")
	if err != nil {
		return nil, err
	}

	// https://dev.mysql.com/doc/refman/9.7/en/group-replication-configuring-consistency-guarantees.html
	if consistency == "EVENTUAL" {
		return found(Warning, "the primary of a replication group whose group_replication_consistency is EVENTUAL",
			"the next primary begins before it has caught up: until then it shows locks as they were, and may let the guard of an "+
				"earlier holder pass",
			"set group_replication_consistency = BEFORE_ON_PRIMARY_FAILOVER, the default from MySQL 8.4 on"), nil
	}

	return fine("the primary of a replication group"), nil
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

// galera looks whether the node is in the part of the cluster that has a quorum
// (https://galeracluster.com/library/documentation/galera-status-variables.html).
func (e *exam) galera(ctx context.Context) ([]Finding, error) {
	findings := e.manyPrimaries("Galera, where each node takes writes")

	component, err := e.variable(ctx, "GLOBAL STATUS", "wsrep_cluster_status")
	if err != nil {
		return findings, err
	}

	ready, err := e.variable(ctx, "GLOBAL STATUS", "wsrep_ready")
	if err != nil || component == "Primary" && ready == "ON" {
		return findings, err
	}

	return append(findings, found(Error, fmt.Sprintf("the node is cut off from Galera (wsrep_cluster_status is %s, wsrep_ready %s)", component, ready),
		"no lock can be acquired or renewed: statements fail with error 1047", "connect to another node, or bring the others back")...), nil
}

// group looks at the members of a replication group, as this one sees them.
// There is nothing to say of a primary.
func (e *exam) group(ctx context.Context) ([]Finding, error) {
	var (
		members, reached     int
		state, role, primary string
	)

	err := e.one(ctx, `SELECT COUNT(*), COALESCE(SUM(member_state IN ('ONLINE', 'RECOVERING')), 0),
       COALESCE(MAX(IF(member_id = @@server_uuid, member_state, NULL)), 'OFFLINE'),
       COALESCE(MAX(IF(member_id = @@server_uuid, member_role, NULL)), ''),
       COALESCE(MAX(IF(member_role = 'PRIMARY', CONCAT(member_host, ':', member_port), NULL)), 'not known')
  FROM performance_schema.replication_group_members`, &members, &reached, &state, &role, &primary)

	switch {
	case err != nil:
		return nil, err
	case state != "ONLINE":
		return found(Warning, "the server belongs to a replication group and is "+state+" in it",
			"what is granted here the group does not know, and the other way round: two can hold a lock",
			"connect to the group's primary, or START GROUP_REPLICATION"), nil
	case reached*2 <= members:
		return found(Error, fmt.Sprintf("the replication group has no majority: %d of %d members are reached", reached, members),
			"commits wait without end, so that no lock can be acquired or renewed", "bring the others back"), nil
	case role == "SECONDARY":
		return fine("a secondary of a replication group whose primary is %s", primary), nil
	default:
		return nil, nil
	}
}
