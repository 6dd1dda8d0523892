// Package dbtest tests package fence on real databases. It is a module of its own, for their
// drivers.
//
// SQLite runs inside the tests. PostgreSQL and MariaDB are started by them, in folders of their
// own, where they are installed; elsewhere those tests are skipped, or fail if
// REDLOCK_REQUIRE_SQL is 1.
//
// The tests build on Linux only. They freeze a holder with SIGSTOP, look in /proc whether it stands
// still, and start servers that the kernel ends with the test.
package dbtest
