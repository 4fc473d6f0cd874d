package tree

// Kinds of messages in the header of an object.
const (
	msgSpace      = 0x01
	msgLinks      = 0x02
	msgType       = 0x03
	msgFillOld    = 0x04
	msgFill       = 0x05
	msgLink       = 0x06
	msgExternal   = 0x07
	msgLayout     = 0x08
	msgFilters    = 0x0B
	msgAttribute  = 0x0C
	msgMore       = 0x10
	msgSymbols    = 0x11
	msgAttributes = 0x15
)

const (
	flagShared = 0x02
	// maxMessages bounds an object; only attributes can be numerous, and many of them
	// are kept elsewhere.
	maxMessages = 1 << 16
)

// message is one message of an object's header.
type message struct {
	kind uint16
	cursor
}

// object is the header of a group, a dataset or a named type.
type object struct {
	address uint64
	off     int64
	all     []message
	read    int64 // bytes of its parts
}

// first is the first message of a kind; nil: there is none.
func (o *object) first(kind uint16) *cursor {
	for i := range o.all {
		if o.all[i].kind == kind {
			c := o.all[i].cursor
			return &c
		}
	}
	return nil
}

// object reads a header with all of its parts.
func (f *File) object(address uint64) (*object, error) {
	off, err := f.at(address)
	if err != nil {
		return nil, err
	}
	o := &object{address: address, off: off}
	head, err := f.read(off, min(f.obj.Size-off, 64))
	if err != nil {
		return nil, err
	}
	if len(head) >= 4 && string(head[:4]) == "OHDR" {
		return o, f.newHeader(o, head)
	}
	c := cursor{b: head, off: off}
	if version := c.u8(); version != 1 {
		return nil, f.Damaged(off, "no object begins here: the version of its header is %d", version)
	}
	c.skip(1)
	count := int(c.u16())
	c.skip(4)
	size := int64(c.u32())
	if c.left() < 4 {
		return nil, f.Damaged(off, "the file ends within the header of an object")
	}
	more := []extent{{off + 16, size}}
	for len(more) > 0 {
		if more, err = f.oldMessages(o, more, count); err != nil {
			return nil, err
		}
	}
	if len(o.all) != count {
		return nil, f.Damaged(off, "the header of an object should have %d messages, but has %d", count, len(o.all))
	}
	return o, nil
}

// extent is a run of bytes of the file.
type extent struct{ off, n int64 }

// oldMessages reads the first of the runs, and returns the others with those that
// it leads to.
func (f *File) oldMessages(o *object, runs []extent, count int) ([]extent, error) {
	if o.read += runs[0].n; o.read > maxBlock {
		return nil, f.Damaged(runs[0].off, "the header of an object has more than %d bytes", maxBlock)
	}
	b, err := f.read(runs[0].off, runs[0].n)
	if err != nil {
		return nil, err
	}
	c := cursor{b: b, off: runs[0].off}
	runs = runs[1:]
	for c.left() >= 8 && len(o.all) < count {
		kind, size, flags := c.u16(), int(c.u16()), c.u8()
		c.skip(3)
		at := c.here()
		m := message{kind, cursor{b: c.bytes(size), off: at}}
		if c.short {
			return nil, f.Damaged(at, "a message of %d bytes does not fit into its header", size)
		}
		if runs, err = f.take(o, m, flags, runs); err != nil {
			return nil, err
		}
	}
	return runs, nil
}

// take appends a message.
func (f *File) take(o *object, m message, flags uint8, runs []extent) ([]extent, error) {
	if flags&flagShared != 0 {
		shared, err := f.shared(m)
		if err != nil {
			return nil, err
		}
		m.cursor = shared
	}
	if len(o.all) >= maxMessages {
		return nil, f.Damaged(o.off, "an object with more than %d messages", maxMessages)
	}
	o.all = append(o.all, m)
	if m.kind != msgMore {
		return runs, nil
	}
	c := m.cursor
	address, n := c.u64(), c.u64()
	off, err := f.at(address)
	if err != nil {
		return nil, err
	}
	if c.short || n > uint64(f.obj.Size-off) {
		return nil, f.Damaged(m.off, "the header of an object goes on with %d bytes at %d", n, off)
	}
	return append(runs, extent{off, int64(n)}), nil
}

// newHeader reads a header of version 2.
func (f *File) newHeader(o *object, head []byte) error {
	c := cursor{b: head, off: o.off, at: 4}
	if version := c.u8(); version != 2 {
		return f.Unsupported(o.off+4, repack, "the header of an object has the version %d", version)
	}
	flags := c.u8()
	if flags&0x20 != 0 {
		c.skip(16)
	}
	if flags&0x10 != 0 {
		c.skip(4)
	}
	size := c.uint(1 << (flags & 3))
	if c.short || size > maxBlock {
		return f.Damaged(o.off, "the header of an object has %d bytes", size)
	}
	start := int64(c.at)
	whole, err := f.summed(o.address, start+int64(size)+4, "OHDR")
	if err != nil {
		return err
	}
	whole.at = int(start)
	more, err := f.newMessages(o, whole, flags, nil)
	if err != nil {
		return err
	}
	for len(more) > 0 {
		next := more[0]
		if o.read += next.n; o.read > maxBlock {
			return f.Damaged(next.off, "the header of an object has more than %d bytes", maxBlock)
		}
		c, err := f.summed(uint64(next.off-f.base), next.n, "OCHK")
		if err != nil {
			return err
		}
		if more, err = f.newMessages(o, c, flags, more[1:]); err != nil {
			return err
		}
	}
	return nil
}

func (f *File) newMessages(o *object, c *cursor, headFlags uint8, runs []extent) ([]extent, error) {
	prefix := 4
	if headFlags&0x04 != 0 {
		prefix = 6
	}
	for c.left() >= prefix {
		kind, size, flags := uint16(c.u8()), int(c.u16()), c.u8()
		c.skip(prefix - 4)
		at := c.here()
		m := message{kind, cursor{b: c.bytes(size), off: at}}
		if c.short {
			return nil, f.Damaged(at, "a message of %d bytes does not fit into its header", size)
		}
		var err error
		if runs, err = f.take(o, m, flags, runs); err != nil {
			return nil, err
		}
	}
	return runs, nil
}

// shared is the message that a shared one refers to: that of a named type.
func (f *File) shared(m message) (cursor, error) {
	c := m.cursor
	version, kind := c.u8(), c.u8()
	if version == 1 {
		c.skip(6)
	}
	if version < 1 || version > 3 || version == 3 && kind != 2 {
		return c, f.Unsupported(m.off, repack, "a message of the unknown shared kind %d, version %d", kind, version)
	}
	address := c.u64()
	if c.short {
		return c, f.Damaged(m.off, "a shared message that leads nowhere")
	}
	if m.kind != msgType {
		return c, f.Unsupported(m.off, repack, "a message of kind %#x that is shared", m.kind)
	}
	return f.named(address)
}

// named is the type that is stored as an object itself. It is not shared itself.
func (f *File) named(address uint64) (cursor, error) {
	if f.within > 4 {
		return cursor{}, f.Damaged(f.obj.Size, "types that name each other")
	}
	f.within++
	defer func() { f.within-- }()
	o, err := f.object(address)
	if err != nil {
		return cursor{}, err
	}
	if c := o.first(msgType); c != nil {
		return *c, nil
	}
	return cursor{}, f.Damaged(o.off, "an object should be a type, but is not")
}
