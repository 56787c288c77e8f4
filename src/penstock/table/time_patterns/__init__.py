"""Java's patterns for points in time: those of DateTimeFormatter (`MODERN`) and of SimpleDateFormat (`SIMPLE`)."""
