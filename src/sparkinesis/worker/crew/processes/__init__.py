"""Workers in processes of this machine, and the supervisor that starts and leads them."""
