"""What many environments cost beyond themselves."""
