// Command clientgo shows that the context of client-go's OnStartedLeading can end later than another one leads, when the network of the
// leader is cut and ReleaseOnCancel is set: the leader tries to give the lease back before it ends that context, and those who wait
// notice a renewal only when it is of another whole second. It depends on when the network is cut. So this is tried eight times at
// once, and the longest counts.
//
// Its documentation says that the package "does not guarantee that only one client is acting as a leader", and of ReleaseOnCancel that
// the work has to be completed before: https://pkg.go.dev/k8s.io/client-go@v0.37.2/tools/leaderelection. The times here are to each
// other as the defaults are.
//
//	go run ./smallest/clientgo http://localhost:8001    # with kubectl proxy
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/sqllock/sqllock/bench/torture/smallest/silent"
)

func main() {
	times := make(chan [2]float64)

	for i := range 8 {
		go func() {
			times <- attempt(fmt.Sprintf("smallest-%d", i), time.Second+time.Duration(i)*125*time.Millisecond)
		}()
	}

	var most [2]float64

	for range 8 {
		if t := <-times; most[1] == 0 || t[1]-t[0] > most[1]-most[0] {
			most = t
		}
	}

	fmt.Printf("second: leads %.2f s after the first's network was cut\n", most[0])
	fmt.Printf("first: told by the context of OnStartedLeading %.2f s after the cut\n", most[1])
}

// attempt returns when the second led, and when the first was told, in seconds after the cut.
func attempt(name string, delay time.Duration) (times [2]float64) {
	var firsts, seconds silent.Network // that of the second is never cut

	first := <-lead(name, "first", &firsts)
	second := lead(name, "second", &seconds)

	<-time.After(delay)
	firsts.Cut()

	began := time.Now()
	told := make(chan float64, 1)

	context.AfterFunc(first, func() { told <- time.Since(began).Seconds() })
	<-second
	times[0] = time.Since(began).Seconds()
	times[1] = <-told

	return times
}

// lead sends the context of OnStartedLeading.
func lead(name, identity string, network *silent.Network) <-chan context.Context {
	leading := make(chan context.Context)

	lock, err := resourcelock.NewFromKubeconfig(resourcelock.LeasesResourceLock, "default", name,
		resourcelock.ResourceLockConfig{Identity: identity}, &rest.Config{Host: os.Args[1], Dial: network.Dial}, 2*time.Second)
	if err != nil {
		log.Fatal(err)
	}

	go leaderelection.RunOrDie(context.Background(), leaderelection.LeaderElectionConfig{
		Lock: lock, LeaseDuration: 3 * time.Second, RenewDeadline: 2 * time.Second, RetryPeriod: 400 * time.Millisecond,
		ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) { leading <- ctx },
			OnStoppedLeading: func() {},
		},
	})

	return leading
}
