package models

import "testing"

// TestLeaseGrace: the model's rounds and prunes go by four TTLs, of which it has the seconds right.
func TestLeaseGrace(t *testing.T) {
	half := leasePlain
	half.forge.ttl = func(ttl int64) int64 { return ttl / 2 }
	if leasePlain.grace() != 8 || leasePlain.pruneGrace() != 8 || half.grace() != 8 || half.pruneGrace() != 4 {
		t.Errorf("graces %d and %d, forged %d and %d", leasePlain.grace(), leasePlain.pruneGrace(), half.grace(), half.pruneGrace())
	}
}
