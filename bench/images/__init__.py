"""PNG, WebP and TIFF decoders, and inflaters, side by side."""
