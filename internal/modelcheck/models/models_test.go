package models_test

import (
	"testing"

	"github.com/typedfold/fold/internal/modelcheck/models"
)

func TestModelsHold(t *testing.T) {
	names := map[string]bool{}
	for _, c := range models.All() {
		if names[c.Name] {
			t.Errorf("two models have the name %s", c.Name)
		}
		names[c.Name] = true
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
	names := map[string]bool{}
	for _, m := range models.Mutations() {
		if names[m.Name] {
			t.Errorf("two mutations have the name %s", m.Name)
		}
		names[m.Name] = true
		t.Run(m.Name, func(t *testing.T) {
			line, err := m.Judge(m.Run(0))
			if err != nil {
				t.Fatal(err)
			}
			t.Log(line)
		})
	}
}
