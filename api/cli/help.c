#include "api/cli/help.h"

#include <string.h>

#include "api/cli/command.h"
#include "api/cli/options.h"

/* A help text while it is printed. */
struct listing {
    const char *noun, *verb; /* NULL: all */
    struct cli_command last; /* of the block of commands whose options are not printed yet */
    bool any;
};

/* A row and where else it stands. */
struct sharing {
    const struct cli_command *owner;
    const struct api_field *row;
    bool found, found_before; /* in another route of the noun; in one before the owner */
    bool owner_passed;
};

static bool same_row(const struct api_field *one, const struct api_field *other)
{
    return strcmp(one->name, other->name) == 0 && strcmp(one->doc, other->doc) == 0 &&
           one->flags == other->flags && one->type == other->type;
}

static bool has_row(const struct cli_command *command, const struct api_field *row)
{
    const struct api_field *tables[CLI_TABLES_MAX];
    cli_command_tables(command, tables);
    for (size_t i = 0; i < CLI_TABLES_MAX; i++) {
        for (const struct api_field *other = tables[i]; other->name; other++) {
            if (same_row(other, row)) {
                return true;
            }
        }
    }
    return false;
}

static bool look_for_row(const struct cli_command *command, void *arg)
{
    struct sharing *sharing = arg;
    if (command->route == sharing->owner->route) {
        sharing->owner_passed = true;
    } else if (strcmp(command->noun, sharing->owner->noun) == 0 && has_row(command, sharing->row)) {
        sharing->found = true;
        sharing->found_before |= !sharing->owner_passed;
    }
    return false;
}

static struct sharing sharing_of(const struct cli_command *owner, const struct api_field *row)
{
    struct sharing sharing = {.owner = owner, .row = row};
    cli_command_each(look_for_row, &sharing);
    return sharing;
}

static void print_row(const struct api_field *row)
{
    char option[CLI_NAME_MAX];
    snprintf(option, sizeof(option), "--%s%s", row->name, row->flags & API_PREFIX ? "KEY" : "");
    printf("      %-24s %s%s (%s)\n", option, row->doc,
           row->flags & API_REQUIRED ? " Required." : "", row->type->name);
}

/* The options of a command: those of its own, then the names of those that others have too. */
static void print_options(const struct cli_command *command, bool in_full)
{
    const struct api_field *tables[CLI_TABLES_MAX];
    cli_command_tables(command, tables);
    for (size_t i = 0; i < CLI_TABLES_MAX; i++) {
        for (const struct api_field *row = tables[i]; row->name; row++) {
            if (in_full || !sharing_of(command, row).found) {
                print_row(row);
            }
        }
    }
    bool any = false;
    for (size_t i = 0; !in_full && i < CLI_TABLES_MAX; i++) {
        for (const struct api_field *row = tables[i]; row->name; row++) {
            if (sharing_of(command, row).found) {
                printf("%s--%s%s", any ? " " : "      also: ", row->name,
                       row->flags & API_PREFIX ? "KEY" : "");
                any = true;
            }
        }
    }
    fputs(any ? "\n" : "", stdout);
}

static void print_command(const struct cli_command *command)
{
    char line[CLI_NAME_MAX * (CLI_ARGUMENTS_MAX + 3)];
    int length = snprintf(line, sizeof(line), "%s %s", command->noun, command->verb);
    for (uint32_t i = 0; i < command->argument_count; i++) {
        length +=
            snprintf(line + length, sizeof(line) - (size_t)length, " %s", command->arguments[i]);
    }
    const char *summary =
        command->collective ? command->collective->summary : command->route->summary;
    printf("  %-40s %s\n", line, summary);
}

/* Commands of one route (the collectives) are a block with one list of options. */
static bool print_in_block(const struct cli_command *command, void *arg)
{
    struct listing *listing = arg;
    if ((listing->noun && strcmp(listing->noun, command->noun) != 0) ||
        (listing->verb && strcmp(listing->verb, command->verb) != 0)) {
        return false;
    }
    if (listing->noun && listing->any && listing->last.route != command->route) {
        print_options(&listing->last, false);
    }
    print_command(command);
    listing->last = *command;
    listing->any = true;
    return false;
}

/* The rows that several commands of the noun have, each under the first one that has it. */
static bool print_shared(const struct cli_command *command, void *arg)
{
    struct listing *listing = arg;
    if (strcmp(listing->noun, command->noun) != 0 || listing->last.route == command->route) {
        return false;
    }
    listing->last = *command;
    const struct api_field *tables[CLI_TABLES_MAX];
    cli_command_tables(command, tables);
    for (size_t i = 0; i < CLI_TABLES_MAX; i++) {
        for (const struct api_field *row = tables[i]; row->name; row++) {
            const struct sharing sharing = sharing_of(command, row);
            if (sharing.found && !sharing.found_before) {
                fputs(listing->any ? "" : "\nOptions of several commands:\n", stdout);
                listing->any = true;
                print_row(row);
            }
        }
    }
    return false;
}

struct nouns {
    FILE *to;
    char last[CLI_NAME_MAX];
};

static bool print_noun(const struct cli_command *command, void *arg)
{
    struct nouns *nouns = arg;
    if (strcmp(nouns->last, command->noun) != 0) {
        fprintf(nouns->to, " %s", command->noun);
        memcpy(nouns->last, command->noun, sizeof(nouns->last));
    }
    return false;
}

void cli_help_nouns(FILE *to)
{
    struct nouns nouns = {.to = to};
    cli_command_each(print_noun, &nouns);
    fputc('\n', to);
}

static bool print_verb(const struct cli_command *command, void *arg)
{
    const char *noun = arg;
    if (strcmp(noun, command->noun) == 0) {
        fprintf(stderr, " %s", command->verb);
    }
    return false;
}

static bool is_known(const char *noun, const char *verb)
{
    struct cli_command command;
    if (!cli_command_find(noun, NULL, &command)) {
        fprintf(stderr, "symtensor: nothing is called '%s'; there are:", noun);
        cli_help_nouns(stderr);
        return false;
    }
    if (verb && !cli_command_find(noun, verb, &command)) {
        fprintf(stderr, "symtensor: no such command: '%s %s'; %s has:", noun, verb, noun);
        cli_command_each(print_verb, command.noun);
        fputc('\n', stderr);
        return false;
    }
    return true;
}

static void print_usage(void)
{
    puts("usage: symtensor [OPTION...] NOUN [VERB] [ARGUMENT...] [--FIELD VALUE...]\n"
         "       symtensor help [NOUN [VERB]]   (also -h, --help behind NOUN or VERB)\n"
         "       symtensor --version\n");
    for (const struct cli_global *global = cli_globals; global->name; global++) {
        printf("  --%-38s %s\n", global->name, global->doc);
    }
    puts(
        "\nThese stand in front of NOUN or VERB; behind VERB they are taken where the command has\n"
        "no field of that name (--output of a collective is the tensor that it writes).\n"
        "Without VERB a noun lists what there is, or shows itself. --FIELD VALUE may be written\n"
        "--FIELD=VALUE; a boolean needs no VALUE. Data bodies: --file PATH (default: standard\n"
        "input or output), --format raw|npy|json.\n"
        "Environment: SYMTENSOR_URL, SYMTENSOR_UNIX_SOCKET.\n"
        "Exit codes: 0 done, 1 refused or failed, 2 usage or a file, 3 no reply.\n");
}

bool cli_help(const char *noun, const char *verb)
{
    if (noun && !is_known(noun, verb)) {
        return false;
    }
    if (!noun) {
        print_usage();
    }
    struct listing listing = {.noun = noun, .verb = verb};
    cli_command_each(print_in_block, &listing);
    if (noun) {
        print_options(&listing.last, verb != NULL);
    }
    if (noun && !verb) {
        struct listing shared = {.noun = noun};
        cli_command_each(print_shared, &shared);
    }
    return true;
}
