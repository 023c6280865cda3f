"""What people read: tables on a terminal, plots and the HTML page. Plans nothing and runs nothing."""

TOPIC = "reports"
"""What the errors of these modules are about, where one says no topic of its own."""
