// Package quorum keeps a lock on a majority of several servers.
package quorum
