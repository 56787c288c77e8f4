"""Java's date and time patterns: DateTimeFormatter (`MODERN`) and SimpleDateFormat (`SIMPLE`)."""
