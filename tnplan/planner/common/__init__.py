"""What every part uses: errors, checks of arguments, files, units, conversion of documents."""
