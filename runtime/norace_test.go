//go:build !race

package fold_test

const poolSlack = 0
