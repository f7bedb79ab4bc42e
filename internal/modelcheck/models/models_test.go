package models_test

import (
	"testing"

	"github.com/typedfold/fold/internal/modelcheck/models"
)

func TestModelsHold(t *testing.T) {
	for _, c := range models.All() {
		if c.Deep {
			continue
		}
		t.Run(c.Name, func(t *testing.T) {
			r := c.Run(0)
			if err := r.Err(); err != nil {
				t.Fatal(err)
			}
			t.Logf("%s in %v", r, r.Elapsed)
		})
	}
}

func TestMutationsAreCaught(t *testing.T) {
	for _, m := range models.Mutations() {
		t.Run(m.Name, func(t *testing.T) {
			line, err := m.Judge(m.Run(0))
			if err != nil {
				t.Fatal(err)
			}
			t.Log(line)
		})
	}
}
