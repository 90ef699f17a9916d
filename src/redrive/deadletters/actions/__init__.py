"""What people do with dead letters: resolve, reopen, delete, edit, peek into a queue, restore, export and import."""
