"""What people read: tables on a terminal, plots and the HTML page. Plans nothing and runs nothing."""

TOPIC = "reports"
