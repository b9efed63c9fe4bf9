"""Was each record of each minute consumed, tiered, mirrored? What `headwater audit --to` found."""
