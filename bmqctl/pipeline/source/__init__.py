"""The tables of a data source over stores: options, planning and scanning, above the rooms of rows and decoding."""
