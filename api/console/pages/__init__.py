"""What each page shows and does, as plain values; nothing here knows NiceGUI."""
