package pack

import "io"

// Through lets what a packing writes to its shards go through wrap.
func (c *Config) Through(wrap func(io.Writer) io.Writer) { c.through = wrap }
