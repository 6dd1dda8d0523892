package browser

import (
	"bytes"
	"flag"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"os"
	"slices"
	"testing"
)

var picture = flag.String("picture", "", "write the picture of the README to this `file`")

// The README shows a story in the middle, at the pace of its readers: a late write was refused, and
// its process holds the lock again.
func TestPicture(t *testing.T) {
	if *picture == "" {
		t.Skip("without -picture")
	}
	b := open(t, serve(t))
	b.look(1280, 800, "light")
	b.press("#story-pause-fenced")
	b.await(`document.getElementById("says").textContent.includes("refuses it") &&
		document.querySelectorAll(".keys li").length === 5`)
	b.screenshot(*picture)
	if err := shrink(*picture); err != nil {
		t.Fatal(err)
	}
}

// shrink leaves a picture the 256 colours that most of it has.
func shrink(file string) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	from, err := png.Decode(bytes.NewReader(data))
	if err != nil {
		return err
	}
	counts, colours := map[color.Color]int{}, color.Palette{}
	for y := from.Bounds().Min.Y; y < from.Bounds().Max.Y; y++ {
		for x := from.Bounds().Min.X; x < from.Bounds().Max.X; x++ {
			c := from.At(x, y)
			if counts[c]++; counts[c] == 1 {
				colours = append(colours, c)
			}
		}
	}
	slices.SortStableFunc(colours, func(a, b color.Color) int { return counts[b] - counts[a] })
	to := image.NewPaletted(from.Bounds(), colours[:min(len(colours), 256)])
	draw.Draw(to, to.Bounds(), from, from.Bounds().Min, draw.Src)
	var small bytes.Buffer
	encoder := png.Encoder{CompressionLevel: png.BestCompression}
	if err := encoder.Encode(&small, to); err != nil {
		return err
	}
	return os.WriteFile(file, small.Bytes(), 0o644)
}
