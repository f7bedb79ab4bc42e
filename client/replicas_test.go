package client_test

import (
	"testing"

	"github.com/typedfold/fold/client"
	"github.com/typedfold/fold/internal/natstest"
)

// requirements are what is checked on three replicas too.
var requirements = []struct {
	name string
	r    requirement
}{
	{"R01", r01}, {"R02", r02}, {"R03", r03}, {"R04", r04}, {"R05", r05}, {"R06", r06}, {"R07", r07}, {"R08", r08}, {"R09", r09}, {"R10", r10},
	{"R11", r11}, {"R12", r12}, {"R13", r13}, {"R14", r14}, {"R15", r15}, {"R16 R38 R39", r16}, {"R17", r17}, {"R19", r19}, {"R20", r20}, {"R21 R24", r21},
	{"R22", r22}, {"R23", r23}, {"R25", r25}, {"R26 R30", r26}, {"R27", r27}, {"R27b", r27b}, {"R27c", r27c}, {"R28", r28}, {"R29", r29}, {"R31 R33", r31},
	{"R32", r32}, {"R34", r34}, {"R35", r35}, {"R36 R37", r37}, {"R40", r40}, {"R41", r41}, {"R42", r42}, {"R43", r43}, {"R44", r44},
	{"R45", r45}, {"R47", r47}, {"R48", r48},
}

// TestReplicas checks the requirements on a stream with three copies.
func TestReplicas(t *testing.T) {
	cluster := natstest.NewCluster(t, 3)
	urls := cluster.Servers[0].URL() + "," + cluster.Servers[1].URL() + "," + cluster.Servers[2].URL()
	for _, r := range requirements {
		t.Run(r.name, func(t *testing.T) { run(t, urls, client.StreamConfig{Replicas: 3, Memory: true}, r.r) })
	}
}
