"""What code is built for: board profiles, toolchains, devices and facts."""
