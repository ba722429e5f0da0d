"""Who owns what: process groups, strips of pixels, and the exchange of splats."""
