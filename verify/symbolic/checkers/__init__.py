"""Programs that check a certificate and share no code with the prover, nor with each other."""
