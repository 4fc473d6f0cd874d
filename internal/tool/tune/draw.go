package tune

import (
	"bytes"
	"fmt"
	"html"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"math"
	"strings"

	"golang.org/x/image/font"
	"golang.org/x/image/font/inconsolata"
	"golang.org/x/image/math/fixed"
	"golang.org/x/image/vector"
)

// dash and gap of a dashed line, pixels.
const dashLength, gapLength = 7.0, 5.0

// SVG is the plot as a vector graphic.
func SVG(r *Report) ([]byte, error) {
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" font-family="Inconsolata, Menlo, Consolas, monospace" font-size="15">`+"\n", plotWidth, plotHeight, plotWidth, plotHeight)
	fmt.Fprintf(&b, `<rect width="100%%" height="100%%" fill="%s"/>`+"\n", paper)
	for _, s := range r.shapes() {
		p := s.points[0]
		switch {
		case s.text != "":
			fmt.Fprintf(&b, `<text x="%.1f" y="%.1f" text-anchor="%s" fill="%s">%s</text>`+"\n", p.x, p.y,
				[...]string{"start", "middle", "end"}[s.anchor], s.color, html.EscapeString(s.text))
		case s.disc:
			fmt.Fprintf(&b, `<circle cx="%.1f" cy="%.1f" r="%g" fill="%s"/>`+"\n", p.x, p.y, s.width, s.color)
		default:
			var points []string
			for _, p := range s.points {
				points = append(points, fmt.Sprintf("%.1f,%.1f", p.x, p.y))
			}
			dashes := ""
			if s.dashed {
				dashes = fmt.Sprintf(` stroke-dasharray="%g %g"`, dashLength, gapLength)
			}
			fmt.Fprintf(&b, `<polyline points="%s" fill="none" stroke="%s" stroke-width="%g" stroke-linejoin="round"%s/>`+"\n",
				strings.Join(points, " "), s.color, s.width, dashes)
		}
	}
	b.WriteString("</svg>\n")
	return []byte(b.String()), nil
}

// PNG is the plot as pixels.
func PNG(r *Report) ([]byte, error) {
	to := image.NewRGBA(image.Rect(0, 0, plotWidth, plotHeight))
	draw.Draw(to, to.Rect, image.NewUniform(rgb(paper)), image.Point{}, draw.Src)
	for _, s := range r.shapes() {
		switch {
		case s.text != "":
			write := font.Drawer{Dst: to, Src: image.NewUniform(rgb(s.color)), Face: inconsolata.Regular8x16}
			width := float64(write.MeasureString(s.text)) / 64
			x := s.points[0].x - width*[...]float64{0, 0.5, 1}[s.anchor]
			write.Dot = fixed.P(int(math.Round(x)), int(math.Round(s.points[0].y)))
			write.DrawString(s.text)
		case s.disc:
			fill(to, s.color, func(z *vector.Rasterizer) { disc(z, s.points[0], s.width) })
		default:
			fill(to, s.color, func(z *vector.Rasterizer) { stroke(z, s) })
		}
	}
	var b bytes.Buffer
	err := png.Encode(&b, to)
	return b.Bytes(), err
}

func rgb(hex string) color.RGBA {
	c := color.RGBA{A: 255}
	_, _ = fmt.Sscanf(hex, "#%02x%02x%02x", &c.R, &c.G, &c.B)
	return c
}

func fill(to *image.RGBA, hex string, path func(*vector.Rasterizer)) {
	z := vector.NewRasterizer(plotWidth, plotHeight)
	path(z)
	z.Draw(to, to.Rect, image.NewUniform(rgb(hex)), image.Point{})
}

// disc adds a circle, as a polygon with enough corners to look round.
func disc(z *vector.Rasterizer, at point, radius float64) {
	const corners = 40
	for i := range corners {
		a := 2 * math.Pi * float64(i) / corners
		x, y := float32(at.x+radius*math.Cos(a)), float32(at.y+radius*math.Sin(a))
		if i == 0 {
			z.MoveTo(x, y)
		} else {
			z.LineTo(x, y)
		}
	}
	z.ClosePath()
}

// stroke adds a line through points, as one rectangle per segment; discs round its
// corners. All shapes have the same direction, so that overlaps add up.
func stroke(z *vector.Rasterizer, s shape) {
	phase := 0.0
	for i := 1; i < len(s.points); i++ {
		a, b := s.points[i-1], s.points[i]
		length := math.Hypot(b.x-a.x, b.y-a.y)
		if length == 0 {
			continue
		}
		if !s.dashed {
			bar(z, a, b, s.width)
			if i > 1 {
				disc(z, a, s.width/2)
			}
			continue
		}
		at := func(d float64) point { return point{a.x + (b.x-a.x)*d/length, a.y + (b.y-a.y)*d/length} }
		for d := -phase; d < length; d += dashLength + gapLength {
			if from, to := max(d, 0), min(d+dashLength, length); to > from {
				bar(z, at(from), at(to), s.width)
			}
		}
		phase = math.Mod(phase+length, dashLength+gapLength)
	}
}

// bar adds a rectangle around a segment of a line.
func bar(z *vector.Rasterizer, a, b point, width float64) {
	length := math.Hypot(b.x-a.x, b.y-a.y)
	nx, ny := (b.y-a.y)/length*width/2, -(b.x-a.x)/length*width/2
	z.MoveTo(float32(a.x+nx), float32(a.y+ny))
	z.LineTo(float32(b.x+nx), float32(b.y+ny))
	z.LineTo(float32(b.x-nx), float32(b.y-ny))
	z.LineTo(float32(a.x-nx), float32(a.y-ny))
	z.ClosePath()
}
