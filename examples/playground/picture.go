package main

import (
	"fmt"
	"time"

	"github.com/redlock-go/redlock"
)

// picture is what the page shows of a world.
type picture struct {
	World     int              `json:"world"`
	Now       time.Time        `json:"now"`
	Settings  settings         `json:"settings"`
	Play      play             `json:"play"`
	Stories   []story          `json:"stories"`
	Nodes     []nodePicture    `json:"nodes"`
	Processes []processPicture `json:"processes"`
	Items     []item           `json:"items"`
	Totals    totals           `json:"totals"`
	First     int              `json:"first"` // the number of the first line
	Lines     []string         `json:"lines"`
}

type nodePicture struct {
	nodeState
	Uptime int64        `json:"uptime"`
	Fence  string       `json:"fence"`
	Keys   []keyPicture `json:"keys"`
}

// keyPicture is a lock as a node has it.
type keyPicture struct {
	Name string `json:"name"`
	Has  string `json:"has"`
	TTL  int64  `json:"ttl"` // in milliseconds
}

type processPicture struct {
	Name  string `json:"name"`
	Reads bool   `json:"reads"`
	lane
}

func (w *world) picture(number int) picture {
	w.mu.Lock()
	pic := picture{World: number, Now: time.Now(), Settings: w.settings, Play: w.play,
		Stories: stories, First: w.first, Lines: append([]string{}, w.lines...)}
	seen := w.seen
	w.mu.Unlock()
	pic.Totals, pic.Items = w.resource.sum()
	for i, n := range w.nodes {
		np := nodePicture{nodeState: n.state(), Uptime: n.uptime(), Fence: n.fence(),
			Keys: []keyPicture{}}
		for _, in := range seen {
			if k := in.Nodes[i]; k.Err == nil && k.Found {
				np.Keys = append(np.Keys, keyPicture{in.Name, has(in, k), k.TTL.Milliseconds()})
			}
		}
		pic.Nodes = append(pic.Nodes, np)
	}
	for i, p := range w.processes {
		pic.Processes = append(pic.Processes, processPicture{p.name, w.job(i).Reads, p.look()})
	}
	return pic
}

// has says who has a lock on a node.
func has(in *redlock.Inspection, k redlock.NodeKey) string {
	switch {
	case k.Reserved:
		return "kept for the next"
	case k.Shared && len(in.Readers) == 1:
		return in.Readers[0].Owner
	case k.Shared:
		return fmt.Sprintf("%d readers", len(in.Readers))
	}
	return owner(k.Value)
}
