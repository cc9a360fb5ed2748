"""Pure topology: the fleet's labels in, the tree of fabrics, leaf groups and machines out."""
