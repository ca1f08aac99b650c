"""What tests share: boards, packages, networks, and other programs that compute the same."""
