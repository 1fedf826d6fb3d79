package pool_test

import (
	"encoding/json"
	"fmt"

	"github.com/p2pbench/p2pbench/internal/transport/rdma/pool"
)

// Both ends prepare all their connections, exchange what they offer, and finish all.
func Example() {
	w := newWorld() // stands for verbs
	spec := pool.Spec{Groups: 2, QPs: 1, Depth: 2, Requests: 256}
	var ends [2]*pool.Pool
	var comms [2][]*pool.Comm
	var offers [2][]byte
	for end, dir := range []pool.Dir{pool.Send, pool.Recv} {
		ends[end], _ = pool.New(w.nic(fmt.Sprint("nic", end)), spec)
		for range 6 {
			c, err := ends[end].Prepare(pool.Peer{Process: addresses[1-end]}, dir, -1)
			if err != nil {
				fmt.Println(err)
				return
			}
			comms[end] = append(comms[end], c)
		}
		var own []pool.Offer
		for _, c := range comms[end] {
			own = append(own, c.Offer())
		}
		offers[end], _ = json.Marshal(own)
	}
	for end := range ends {
		var theirs []pool.Offer
		if err := json.Unmarshal(offers[1-end], &theirs); err != nil {
			fmt.Println(err)
			return
		}
		for i, c := range comms[end] {
			if err := c.Finish(theirs[i]); err != nil {
				fmt.Println(err)
				return
			}
		}
	}
	for _, c := range comms[0] {
		fmt.Printf("connection %d: group %d, primary %t\n", c.ID(), c.Group(), c.Primary())
	}
	fmt.Printf("%+v\n", ends[0].Counts())
	// Output:
	// connection 1: group 0, primary true
	// connection 2: group 1, primary true
	// connection 3: group 0, primary false
	// connection 4: group 1, primary false
	// connection 5: group 0, primary false
	// connection 6: group 1, primary false
	// {QPs:2 CQs:2 Comms:6 References:6}
}

func ExampleFeasible() {
	fmt.Println(pool.Feasible(16, 4, 8, 1, 2, 256))
	fmt.Println(pool.Feasible(4, 8, 8, 1, 2, 256))
	// Output:
	// <nil>
	// pool: --groups 8 with --conns 4: there are fewer connections than groups: use --groups 4 or fewer
}
