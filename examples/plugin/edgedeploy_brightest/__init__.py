"""What a package can add to edgedeploy, with a network that finds the brightest pixel of an image."""
