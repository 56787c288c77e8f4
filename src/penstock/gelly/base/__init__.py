"""What all of graphs stands on: elements, streams, operators in step."""
