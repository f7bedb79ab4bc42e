package exampletest

import (
	"fmt"
	"os"
	"strings"
)

// ReadmeCommands are the command lines in a README's sh blocks, each split into words, without comments. It knows
// single quotes and nothing else of a shell.
func ReadmeCommands(path string) ([][]string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var commands [][]string
	inside := false
	for line := range strings.Lines(string(text)) {
		switch line = strings.TrimSpace(line); {
		case strings.HasPrefix(line, "```"):
			inside = line == "```sh"
		case inside && line != "":
			words, err := shellWords(line)
			if err != nil {
				return nil, fmt.Errorf("%s: %q: %w", path, line, err)
			}
			commands = append(commands, words)
		}
	}
	return commands, nil
}

func shellWords(line string) ([]string, error) {
	var words []string
	var word strings.Builder
	begun, quoted := false, false
	for _, c := range line {
		switch {
		case c == '\'':
			begun, quoted = true, !quoted
		case quoted:
			word.WriteRune(c)
		case c == '#' && !begun:
			return words, nil
		case c == ' ':
			if begun {
				words = append(words, word.String())
			}
			word.Reset()
			begun = false
		default:
			begun = true
			word.WriteRune(c)
		}
	}
	if quoted {
		return nil, fmt.Errorf("a quote is not closed")
	}
	if begun {
		words = append(words, word.String())
	}
	return words, nil
}
