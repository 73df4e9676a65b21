"""The batch read: positions and pushed filters become shard ranges with fixed ends."""
